"""Rules by which a server need not trust every client: one file each; `training` and `aggregators` wrap them."""
