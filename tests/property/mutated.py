"""Bytes that a batch system never printed."""

from hypothesis import strategies as st


def mutations(original: bytes, *fillings: bytes) -> st.SearchStrategy[bytes]:
    """Real output with a piece cut out, doubled, or replaced."""
    place = st.integers(0, len(original))
    filling = st.one_of(st.binary(max_size=30), st.sampled_from(fillings))

    def change(start: int, end: int, new: bytes) -> bytes:
        return original[:start] + new + original[end:]

    return st.builds(change, place, place, filling) | st.binary(max_size=200)
