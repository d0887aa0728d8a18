"""SGLang's real plugin loader, loader classes and weight updater, as far as they go without a GPU."""
import os


def test_sglang_starts_and_updates_from_the_daemon_and_refuses_what_is_another_model(folder, models, new_models, python):
    path = os.pathsep.join([os.environ["TENSORCAST_SGLANG"], os.environ["PYTHONPATH"]])
    bad = [str(models["llama_mqa"][0]), "gs://models/nowhere", str(folder / "nowhere")]
    job = {"old": str(models["llama"][0]), "new": "gs://models/new/llama", "new_folder": new_models["llama"], "bad": bad}
    (report,), _ = python("sglang_loader.py", job, timeout=300, PYTHONPATH=path)
    assert report["is_ours"] and report["start"] and report["other_formats"] == "DefaultModelLoader"
    assert report["updated"] == [True, "Succeeded to update model weights.", True]
    for (done, message, same), why in zip(report["refused"], ("other tensors or shapes", "cannot load gs://models/nowhere", "no folder")):
        assert not done and why in message and same, "the old weights serve"
