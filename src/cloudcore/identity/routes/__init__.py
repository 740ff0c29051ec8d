"""The routes of identity's resources, a module for each; `common` is what they share."""
