from topoadvisor.collect import nvidia_smi
from topoadvisor.errors import InputError
from topoadvisor.ingest import topo_matrix

MATRIX = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV18\t0-31\t0\nGPU1\tNV18\t X \t0-31\t0\n"


def read(world):
    return nvidia_smi.finish(nvidia_smi.start(world), 5.0)


def test_no_program_is_one_absent_source(make_world):
    reading = read(make_world())
    assert [(source.name, source.status) for source in reading.sources] == [("nvidia-smi topo -m", "absent")]
    assert reading.raw == []


def test_texts_are_kept_and_the_matrix_is_read(make_world):
    programs = {"nvidia-smi topo -m": (0, MATRIX), "nvidia-smi nvlink -s": (0, "GPU 0: NVIDIA H200\n")}
    reading = read(make_world(programs=programs))
    assert {raw.source: raw.text for raw in reading.raw} == {
        "nvidia-smi topo -m": MATRIX,
        "nvidia-smi nvlink -s": "GPU 0: NVIDIA H200\n",
    }
    assert reading.matrices[0].cells["GPU0"]["GPU1"] == "NV18"


def test_each_command_fails_for_itself(make_world):
    sources = {source.name: source for source in read(make_world(programs={"nvidia-smi topo -m": (0, MATRIX)})).sources}
    assert sources["nvidia-smi topo -m"].status == "ok"
    assert sources["nvidia-smi topo -p2p r"].status == "failed"
    assert sources["nvidia-smi topo -p2p r"].reason == (
        "nvidia-smi ended with code 2: Invalid combination of arguments"
    )


def test_hung_command_says_so(make_world):
    sources = read(make_world(programs={"nvidia-smi topo -m": (None, "")})).sources
    assert (sources[0].status, sources[0].reason) == ("failed", "nvidia-smi gave no answer within 5 s")


def test_text_that_is_no_matrix_is_kept_and_the_source_partial(make_world, monkeypatch):
    def refuse(text, *, file):
        raise InputError("no matrix in here", file=file)

    monkeypatch.setattr(topo_matrix, "parse", refuse)
    reading = read(make_world(programs={"nvidia-smi topo -m": (0, "nonsense\n")}))
    assert reading.sources[0].status == "partial"
    assert "no matrix in here" in reading.sources[0].reason
    assert reading.raw[0].text == "nonsense\n"


def test_broken_reader_does_not_break_the_capture(make_world, monkeypatch):
    monkeypatch.setattr(topo_matrix, "parse", lambda text, *, file: 1 / 0)
    assert read(make_world(programs={"nvidia-smi topo -m": (0, MATRIX)})).sources[0].status == "partial"
