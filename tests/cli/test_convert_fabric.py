"""`genie convert fabric`: other tools' networks become files that `genie simulate` plays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from live_runs import in_this_process, rings

from simtwin.fabric.reading import load_fabric
from simtwin.imports.fabrics import READERS

TOPOLOGY = "3 1 2\n2\n2 0 100Gbps 1us 0\n2 1 100Gbps 1us 0\n"


def test_simai_s_sample_plays(shared_data: Path, tmp_path: Path) -> None:
    folder, out = shared_data / "simai", tmp_path / "fabric.toml"
    source = str(folder / "Spectrum-X_16g_8gps_400Gbps_H100")
    converted = in_this_process("convert", "fabric", source, "--conf", str(folder / "SimAI.conf"), "-o", str(out))
    assert (converted.code, converted.stderr) == (0, "")
    assert converted.stdout.splitlines() == [
        "note: all windows follow the longest base round trip: that model has one for each pair of hosts",
        "16 hosts, 10 switches, 2 bridges inside servers, 48 cables (32 of 400Gb/s, 16 of 2880Gb/s); in " + str(out),
    ]
    trace, run = rings(tmp_path / "trace", 16, collectives=1, compute_ns=0), tmp_path / "run"
    assert in_this_process("simulate", trace, "--fabric", str(out), "-o", str(run)).code == 0
    facts = json.loads((run / "run.json").read_text())
    assert facts["lowering"]["ranks_per_node"] == 8
    assert [host["switch"] for host in facts["hosts"]] == [f"switch{18 + rank % 8}" for rank in range(16)]


def test_the_file_to_write_may_stand_behind_the_one_to_read(tmp_path: Path) -> None:
    (tmp_path / "topology").write_text(TOPOLOGY)
    texts = []
    for way in (["-o", str(tmp_path / "a.toml")], [str(tmp_path / "b.toml")]):
        converted = in_this_process("convert", "fabric", str(tmp_path / "topology"), "--from", "ns3", *way)
        assert converted.code == 0
        texts.append(Path(way[-1]).read_text())
    assert texts[0] == texts[1]
    assert load_fabric(tmp_path / "a.toml").hosts == 2


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("topology", "give one file to write: -o OUT.toml"),
        ("topology out.toml -o out.toml", "give one file to write: -o OUT.toml"),
        ("topology topology", "topology: is also the input SOURCE; give another file to write"),
        ("topology --conf conf -o conf", "conf: is also the input --conf; give another file to write"),
        ("topology conf", "conf: is not a file that Genie wrote there; move it, or choose another output"),
        ("none out.toml", "none: cannot be read: No such file or directory; give a text file"),
        (". out.toml", ".: cannot be read: Is a directory; give a text file"),
        ("topology -o .", ".: is a folder; give a file there to write, such as fabric.toml"),
        ("topology -o new/out.toml", "new/out.toml: there is no folder new; make it, or choose another -o"),
        (
            "topology out.toml --nic-rate fast",
            "--nic-rate fast: is not a number with a unit; give a rate such as 200Gb/s",
        ),
        ("topology out.toml --delay 5", "--delay 5: has no unit; give 0s to 1000s, such as 500ns"),
        ("topology out.toml --spines 3", "--spines: is for nccl, and topology is ns-3's topology: leave it out"),
        ("topology out.toml --conf none", "none: cannot be read: No such file or directory; give a text file"),
        ("topology out.toml --from gns3", f"--from gns3: must be one of {', '.join(READERS)}"),
    ],
)
def test_what_cannot_be_converted_is_said_in_one_line(
    words: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("topology").write_text(TOPOLOGY)
    Path("conf").write_text("BUFFER_SIZE 32\n")
    ended = in_this_process("convert", "fabric", *words.split())
    assert (ended.code, ended.stdout) == (2, "")
    assert ended.stderr == f"genie: {says}\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["conf", "topology"]
    assert Path("topology").read_text() == TOPOLOGY
    assert Path("conf").read_text() == "BUFFER_SIZE 32\n"
