"""Write the current payloads as golden bytes: python -m tests.golden.regenerate, from the root of the repository."""

from .cases import FILE, load, save

if __name__ == "__main__":
    before = {entry[:2]: entry for entry in load()} if FILE.exists() else {}
    save()
    changed = [entry for entry in load() if before.get(entry[:2]) != entry]
    print(f"{len(changed)} of {len(load())} entries changed")
    for entry in changed:
        print(f"  {entry.codec} of {entry.dtype}")
