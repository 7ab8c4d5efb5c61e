"""Ways to die in the middle of a run."""

import os

OPERATIONS = ("replace", "fsync", "unlink", "rmdir", "mkdir")


def killed_after(operations, work):
    """Do `work` in a child that dies, as by kill -9, at its n-th change of the file system.

    Files under a temporary name cannot be seen by anyone; what can go wrong is the order of
    creations, flushes, renames and removals, and each of them is a moment to die at.
    Returns whether the child died.
    """
    child = os.fork()
    if child == 0:
        left = [operations]

        def deadly(original):
            def call(*args, **kwargs):
                left[0] -= 1
                if left[0] < 0:
                    os._exit(99)
                return original(*args, **kwargs)

            return call

        for name in OPERATIONS:
            setattr(os, name, deadly(getattr(os, name)))
        try:
            work()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 99


def descendants(pid):
    """All processes below `pid`, as (pid, name), parents first."""
    children = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    text = file.read()
            except OSError:  # it has just ended
                continue
            name, rest = text[text.index("(") + 1 :].rsplit(")", 1)
            children.setdefault(int(rest.split()[1]), []).append((int(entry), name))
    found, queue = [], [pid]
    while queue:
        for child in children.get(queue.pop(0), []):
            found.append(child)
            queue.append(child[0])
    return found
