"""Named, fixed conversations, for what users of such servers really reported. One module for each subject."""
