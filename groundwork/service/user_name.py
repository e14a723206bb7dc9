"""What the system calls a user."""

import pwd


def user_name(number: int) -> str:
    """The user's name; the number itself for one without a name, as in many containers."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
