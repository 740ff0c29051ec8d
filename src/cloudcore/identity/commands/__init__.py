"""The commands of `entrepot` about people, programs and their rights; one module per subject."""
