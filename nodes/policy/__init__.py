"""What may run without a person, what a person must see first, and what never runs. One place, one order.

`verdict` the answer, `rules` what a person wrote, `files` the configuration that holds them, `judge` the order of decisions.
Shell commands: `script` their normal form, `words`, `parsing` and `survey` how it is read, `wrappers` and `unwrapping` what
wrappers really run, `shell` the verdict on each part, `marks` what runs unasked in auto mode, `floor` what never runs,
`paths` what lies inside the workspace.
"""
