"""Questions over whole documents."""
