"""The routes of identity's resources, a module for each; `common` has their shared parts."""
