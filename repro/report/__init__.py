"""What people and machines read: ``terminal`` for people, ``document`` for JSON, ``html`` for a page about that JSON.

Of the gate's answer, and of a page's differences, there are ``markdown`` and ``junit`` too, and ``github``.
"""
