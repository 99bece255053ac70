"""What padding does to each operator; importing it registers all rules."""

from fuse.families.rules import (
    attention as attention,
    convolution as convolution,
    independent as independent,
    indexing as indexing,
    layers as layers,
    reductions as reductions,
    shapes as shapes,
)
from fuse.families.rules.registry import rule_of as rule_of
