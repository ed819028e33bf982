"""What a caller chooses per run, shown as a form in LangGraph Studio. Never stored: secrets do not belong here either."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from nodes.state import ReviewMode


class AgentContext(BaseModel):
    """The terms of one run.

    Keys for model endpoints are not part of it: they stay in the process's environment, where the model node reads them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = Field(
        default="",
        description="Model to answer with; empty takes CHECKREIN_MODEL from the runtime's environment.",
        json_schema_extra={"langgraph_nodes": ["model"]},
    )
    base_url: str = Field(
        default="",
        description="An OpenAI-compatible endpoint, for example http://127.0.0.1:8080/v1; empty takes CHECKREIN_BASE_URL.",
        json_schema_extra={"langgraph_nodes": ["model"]},
    )
    review_mode: ReviewMode = Field(
        default="manual",
        description="manual: every tool with an effect asks. auto: only what the policy marks asks.",
        json_schema_extra={"langgraph_nodes": ["approval"]},
    )
    workspace: str = Field(
        default="",
        description="Folder that tools act in; empty takes the folder in which the runtime was started.",
        json_schema_extra={"langgraph_nodes": ["tool", "native"]},
    )
    sandbox: str = Field(
        default="",
        description="Reuse key of a sandbox session: its workspace is kept for the next run with the same key.",
        json_schema_extra={"langgraph_nodes": ["tool", "native"]},
    )
    instructions: str = Field(
        default="",
        description="Added to the system prompt.",
        json_schema_extra={"langgraph_nodes": ["model"], "langgraph_type": "prompt"},
    )
    finite: bool = Field(default=False, description="Nobody stays to answer: what would ask is denied at once.")
    unattended: bool = Field(
        default=False, description="Nobody is there and the caller answers for what runs; only together with finite."
    )
    yolo: bool = Field(default=False, description="Bypass approvals. The floor and the deny rules hold all the same.")
    max_turns: int = Field(default=50, ge=1, le=10_000, description="Model calls that one task may make.")
    max_tool_calls: int = Field(default=200, ge=1, le=100_000, description="Tool calls that one task may ask for.")
    max_tokens: int = Field(default=0, ge=0, description="Tokens that one task may use in all; 0 sets no limit.")
    max_cost: float = Field(default=0.0, ge=0, description="US dollars that one task may cost; 0 sets no limit.")
    approval_timeout: float = Field(
        default=0.0, ge=0, le=365 * 86400, description="Seconds after which an unanswered approval expires; 0 is never."
    )
    timeout: float = Field(default=3600.0, gt=0, le=7 * 86400, description="Seconds that one run may take.")

    @model_validator(mode="after")
    def _posture_makes_sense(self) -> Self:
        if self.unattended and not self.finite:
            raise ValueError("a run cannot be unattended without being finite")
        return self
