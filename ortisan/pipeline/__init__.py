"""The only place that joins the layers: from a model and options to a compilation, a library, an artifact."""
