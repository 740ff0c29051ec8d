"""Where blob bytes live, filed by object id; what an object means is the metadata's business."""
