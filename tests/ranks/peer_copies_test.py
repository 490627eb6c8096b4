"""The state of the last step lies in the memory of two hosts (name spaces of networks and processes,
each with a folder that stands for its memory). Either host is lost with all its memory: the run resumes
where it was, without a durable checkpoint. And on one host, where --nproc starts the ranks again.
About 20 s. Needs CAP_NET_ADMIN."""

import os
import shutil
import sys
import tempfile

import hosts
import rank_runs

NEVER = ["checkpoint.every_steps=0", "checkpoint.every_seconds=0"]
WITH_COPIES = [*NEVER, "--peer-copies", "1"]


def both(pair, target, run, memories, *arguments, fault=""):
    """Two hosts of one rank; their exit codes and what they wrote."""
    ranks = []
    for rank in range(2):
        variables = hosts.rank_variables(rank, 2, 1)
        variables.update(TUTTI_SECRET="s", TUTTI_MEMORY_ROOT=memories[rank])
        if fault:
            variables["TUTTI_FAULT"] = fault
        ranks.append(pair.start(rank, rank_runs.command(target, run, *arguments), **variables))
    errors = [rank.communicate(timeout=120)[1] for rank in ranks]
    return [rank.returncode for rank in ranks], errors


def two_hosts(at, recipe, expected):
    with hosts.Hosts() as pair:
        for lost in range(2):
            run = at(f"lost-{lost}")
            memories = [at(f"memory-{lost}-{host}") for host in range(2)]
            for memory in memories:
                os.mkdir(memory)
            codes, errors = both(pair, recipe, run, memories, *WITH_COPIES,
                                 fault=f"rank={lost} step=8 at=backward do=exit")
            assert 0 not in codes, (codes, errors)
            assert all(len(os.listdir(memory)) == 1 for memory in memories)
            assert not os.path.exists(os.path.join(run, "checkpoints"))
            shutil.rmtree(memories[lost])
            os.mkdir(memories[lost])
            codes, errors = both(pair, recipe, run, memories, *WITH_COPIES)
            assert codes == [0, 0], errors[0][-3000:] + errors[1][-3000:]
            shown = [text for text in rank_runs.messages(run) if "resuming" in text]
            assert shown == ["resuming at step 7 of 20, from the memory of its hosts"], shown
            worst = rank_runs.compare(run, expected, 20)
            steps = [e["step"] for e in rank_runs.events(run) if e["event"] == "step_done"]
            assert steps == list(range(1, 21)), steps
            left = [os.listdir(memory) for memory in memories]
            assert left == [[], []], left
            print(f"host {lost} lost in step 8: resumed after step 7, losses differ by at most "
                  f"{worst:.1e}")


def one_host(at, recipe, expected):
    memory = at("memory")
    os.mkdir(memory)
    run = at("one-host")
    rank_runs.train(recipe, run, *WITH_COPIES, "--nproc", "2", "parallel.zero=1",
                    fault="rank=1 step=9 at=backward do=kill", TUTTI_MEMORY_ROOT=memory)
    shown = rank_runs.messages(run)
    assert any("start again from the peer copies after step 8" in text for text in shown), shown
    assert any("resuming at step 8 of 20, from the memory" in text for text in shown), shown
    worst = rank_runs.compare(run, expected, 20)
    print(f"one host, rank 1 killed in step 9: losses differ by at most {worst:.1e}")
    # A run that resumes without copies is not reset to them later.
    run = at("left")
    rank_runs.train(recipe, run, *WITH_COPIES, "--nproc", "1", "--stop-after", "6", code=75,
                    TUTTI_MEMORY_ROOT=memory)
    assert os.path.exists(os.path.join(run, "peer-copies"))
    rank_runs.train(recipe, run, *NEVER, TUTTI_MEMORY_ROOT=memory)
    assert not os.path.exists(os.path.join(run, "peer-copies"))
    # Memory that cannot be written: a warning, and training continues.
    blocked = at("file")
    open(blocked, "w").close()
    run = at("blocked")
    rank_runs.train(recipe, run, *WITH_COPIES, "--nproc", "2", TUTTI_MEMORY_ROOT=blocked)
    shown = [text for text in rank_runs.messages(run) if "has no peer copies" in text]
    assert len(shown) == 20 and blocked in shown[0], shown


def test():
    with tempfile.TemporaryDirectory() as folder:
        recipe = rank_runs.prepare(folder)
        at = lambda name: os.path.join(folder, name)
        rank_runs.train(recipe, at("alone"))
        expected = rank_runs.losses(at("alone"))
        one_host(at, recipe, expected)
        two_hosts(at, recipe, expected)


if __name__ == "__main__":
    sys.exit(rank_runs.main(test))
