"""The folder an agent works in, reached by directory handles so that no path, link or race leads out of it.

`names` what a path text may be, `handles` how a folder is opened, `workspace` the folder itself, `atomic` how a file is
replaced, `reading` bounded pages, `walking`, `ignoring`, `searching` and `patterns` what lies under a folder, `changes`
writes that can be planned before and recognised after, `diffing` how they are shown, `bounds` how long anything said
may be.
"""
