"""What people and machines read: ``terminal`` for people, ``document`` for JSON.

Of the gate's answer there are ``markdown``, ``junit`` and ``github`` too.
"""
