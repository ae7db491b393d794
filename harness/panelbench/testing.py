"""The exam every plugin takes, ours and a stranger's, and the tiny panels it is taken on.

`panelbench check PLUGIN` runs `examine`; in a plugin's own tests call `examine_component`, or
parametrise over `questions`.
"""

from __future__ import annotations
