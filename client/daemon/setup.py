"""The wheel's tag: programs for one kind of machine, and any Python."""
from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel


class Programs(Distribution):
    def has_ext_modules(self):
        return True


class Wheel(bdist_wheel):
    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


setup(distclass=Programs, cmdclass={"bdist_wheel": Wheel})
