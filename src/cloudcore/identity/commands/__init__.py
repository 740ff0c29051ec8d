"""The commands of `entrepot` about people, programs and their rights, a module for each subject."""
