"""What people and machines read: ``terminal`` for people, ``document`` for JSON."""
