"""What somebody's own tests may use: `assert_capsnet`."""

from capsviz.checks.testing import assert_capsnet

__all__ = ["assert_capsnet"]
