"""Pages of repositories, images, tags, lifecycle policies, mirrors and storage."""
