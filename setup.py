"""The packages: capsviz, and inside of it what lies at the top of the repository."""

from setuptools import find_packages, setup

inside = find_packages(include=["analyses*", "trained*"])  # where they lie: setup.cfg, package_dir
setup(packages=[*find_packages(include=["capsviz*"]), *(f"capsviz.{name}" for name in inside)])
