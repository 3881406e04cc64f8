"""pytest's collection checks the contracts between variants."""

BENCHMARK = """
    from tfbench import Axis, Level, across, as_fast, faster

    FEED = Axis("feed", Level("naive"), Level("ahead"))
    SIZE = Axis("size", Level("1"), Level("2"))

    {claim}
    @across(FEED, SIZE)
    def test_feed(bench, variant):
        bench(sum, range(500))
"""


REFUSED = [
    ("@faster('feed=behind', than='feed=naive', by=2)", "names 'feed=behind', but no variant has it"),
    ("@faster('feed=ahead', than='feed=native', by=2)", "feed is naive, ahead; size is 1, 2"),
    ("@faster('feed=ahead', than='feed=ahead', by=2)", "which is no other variant"),
    ("@as_fast('feed=ahead', like='layout=NHWC')", "no variant has it"),
    ("@as_fast('size=2', like='')", "no variant has it"),
    ("@faster('feed=ahead', than='feed=naive', by=0)", "by=0 must be a positive number"),
]


def test_a_contract_without_a_matching_variant_is_refused(project):
    for number, (claim, reported) in enumerate(REFUSED):
        file = f"benchmarks/test_claim_{number}.py"
        project.write(BENCHMARK.format(claim=claim), file)
        done = project.run("--collect-only", file)
        assert done.code != 0, claim
        assert reported in done.output, (claim, done.output)


def test_a_contract_applies_to_every_variant_with_its_levels_and_to_a_selection_of_them(project):
    claim = "@faster('feed=ahead', than='feed=naive', by=0.01)\n    @as_fast('feed=ahead,size=2', like='size=1')"
    project.write(BENCHMARK.format(claim=claim))
    done = project.run("-k", "ahead")
    reported = {row["case"].partition("[")[2]: row for row in done.report["verdicts"] if "contract" in row["metric"]}
    assert done.code == 0, done.output
    assert set(reported) == {"feed=ahead,size=1]", "feed=ahead,size=2]"}
    rows = [(row["metric"], row["outcome"]) for row in done.report["verdicts"] if "size=2" in row["case"]][1:]
    assert [metric for metric, _ in rows if "contract" in metric] == [
        "contract:faster_than", "contract:as_fast",
    ]  # fmt: skip
    assert dict(rows)["contract:faster_than"] == "inconclusive"
