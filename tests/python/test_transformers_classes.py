"""Which classes tensorcast_client.transformers.from_pretrained takes; what it does with them is in tests/faces."""
import pytest

from tensorcast_client.transformers import from_pretrained


def test_a_class_of_diffusers_is_refused_with_the_ways_that_there_are():
    class Mixin:
        __module__ = "diffusers.models.modeling_utils"

        @classmethod
        def from_pretrained(cls, folder):
            raise OSError("no file named diffusion_pytorch_model.bin")

    class UNet(Mixin):
        pass

    with pytest.raises(ValueError, match="UNet is a class of diffusers.*python -m tensorcast_client run.*tensorcast folder"):
        from_pretrained(UNet, "gs://bucket/unet")
