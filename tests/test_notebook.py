"""What notebooks need beside the lesson: a helper's own source."""

from grpo_workbook.notebook import show


def test_show_displays_the_source_as_it_is(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    show(show)
    assert shown[0].data.startswith("def show(")
    assert "display(Code(" in shown[0].data
