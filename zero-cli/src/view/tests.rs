//! What a page and a figure say is what the plan says.
