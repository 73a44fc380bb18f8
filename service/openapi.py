"""Examples of answers in the OpenAPI document, as the routes declare them."""

from typing import Any


def example(
    answer: Any, status: int = 200, description: str = "", media_type: str = "application/json"
) -> dict[int | str, dict[str, Any]]:
    """Return the `responses` argument of a route with an example answer.

    Args:
        answer: the answer; a text if it is not JSON.
        status: its status.
        description: description of the answer; default: FastAPI's.
        media_type: its media type.
    """
    described = {"description": description} if description else {}
    return {status: {**described, "content": {media_type: {"example": answer}}}}
