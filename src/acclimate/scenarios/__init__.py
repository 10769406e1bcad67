"""Who holds and meets what, when: populations of clients."""
