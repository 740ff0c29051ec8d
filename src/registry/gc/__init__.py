"""The collector: what nobody needs any more goes, and fsck says whether all is well."""
