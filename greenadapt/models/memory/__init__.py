"""A general model beside the domain model (Wan et al., arXiv 2212.03613)."""
