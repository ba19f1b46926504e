"""
Bodies as coding agents send them, with short texts in place of their own: Codex (openai/codex, codex-rs: ResponsesApiRequest of
codex-api/src/common.rs, ResponseItem of protocol/src/models.rs) and Claude Code (as recorded in ggml-org/llama.cpp#20623 and
anthropics/claude-code#68900).
"""

THINKING = """\
{%- for m in messages %}
{{- '<|im_start|>' + m.role + '\\n' }}
{%- if m.reasoning_content %}{{ '<think>\\n' + m.reasoning_content + '\\n</think>\\n' }}{% endif %}
{{- (m.content or '') + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' + ('' if enable_thinking is false else '<think>\\n') }}{% endif %}
"""


def thinking_template(folder):
    """The name of a file with a chat template whose replies begin with thinking."""
    path = folder / "thinking.jinja"
    path.write_text(THINKING)
    return str(path)


COMMAND = {"type": "object", "properties": {"cmd": {"type": "string"}, "workdir": {"type": "string"}}, "required": ["cmd"],
           "additionalProperties": False}


def said(role, *texts):
    return {"type": "message", "role": role,
            "content": [{"type": "output_text" if role == "assistant" else "input_text", "text": text} for text in texts]}


def codex(*turns):
    """A turn of Codex: what it says first, then `turns`."""
    start = [
        said("developer", "<permissions instructions>\nThe sandbox is read-only.\n</permissions instructions>"),
        said("user", "# AGENTS.md instructions for /repo\n\n<INSTRUCTIONS>\nBe brief.\n</INSTRUCTIONS>",
             "<environment_context>\n  <cwd>/repo</cwd>\n  <shell>bash</shell>\n</environment_context>"),
        said("user", "Which files are there?"),
    ]
    return {
        "model": "local",
        "instructions": "You are Codex, a coding agent. You and the user share the same workspace.",
        "input": [*start, *turns],
        "tools": [
            {"type": "function", "name": "exec_command", "description": "Runs a command in a PTY.", "strict": False,
             "parameters": COMMAND},
            {"type": "function", "name": "update_plan", "description": "Updates the task plan.", "strict": False,
             "parameters": {"type": "object", "properties": {"plan": {"type": "array", "items": {
                 "type": "object", "properties": {"step": {"type": "string"}, "status": {"type": "string"}}}}}}},
            {"type": "custom", "name": "apply_patch", "description": "Edits files.",
             "format": {"type": "grammar", "syntax": "lark", "definition": "start: \"*** Begin Patch\" LF"}},
            {"type": "web_search", "external_web_access": True, "search_content_types": ["text", "image"]},
            {"type": "local_shell"},
            {"type": "tool_search", "execution": "client", "parameters": {"type": "object"}},
            {"type": "namespace", "name": "multi_agent_v1", "description": "Agents.", "tools": [
                {"type": "function", "name": "spawn", "strict": False, "parameters": {"type": "object", "properties": {}}}]},
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "store": False,
        "stream": True,
        "stream_options": {"reasoning_summary_delivery": "sequential_cutoff"},
        "include": ["reasoning.encrypted_content"],
        "service_tier": "default",
        "prompt_cache_key": "0198f0a5-6c5c-7f30-a8ab-54cc12fbc7a4",
        "text": {"verbosity": "low"},
        "client_metadata": {"x-codex-installation-id": "0f3b6a1e"},
    }


CODEX_TURNS = [
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "I list them."}], "content": None,
     "encrypted_content": None},
    {"type": "function_call", "id": "fc_1", "name": "exec_command", "arguments": "{\"cmd\": \"ls\"}", "call_id": "call_1"},
    {"type": "function_call_output", "call_id": "call_1", "output": "Wall time: 0.1 seconds\nOutput:\nREADME.md\nmain.c"},
    {"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "c"}},
    {"type": "custom_tool_call", "status": "completed", "call_id": "call_2", "name": "apply_patch", "input": "*** Begin Patch\n"},
    {"type": "custom_tool_call_output", "call_id": "call_2", "output": "Success"},
    {"type": "ghost_snapshot", "ghost_commit": {"id": "0", "parent": None, "preexisting_untracked_files": []}},
]


def claude_code(nonce, *turns):
    """A turn of Claude Code: the nonce of its billing header is another one in each request."""
    cached = {"cache_control": {"type": "ephemeral"}}
    return {
        "model": "claude-local",
        "system": [
            {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1.177.01c; cc_entrypoint=cli; cch={nonce};"},
            {"type": "text", "text": "You are Claude Code, Anthropic's official CLI for Claude.", **cached},
            {"type": "text", "text": "You are an interactive agent that helps users with software engineering tasks.",
             "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        ],
        "messages": [
            {"role": "user", "content": [
                {"type": "text", "text": "<system-reminder>\nAs you answer, you can use the following context.\n</system-reminder>"},
                {"type": "text", "text": "Which files are there?", **cached}]},
            *turns,
        ],
        "tools": [
            {"name": "Bash", "description": "Executes a bash command.",
             "input_schema": {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
                              "properties": {"command": {"type": "string"}}, "required": ["command"],
                              "additionalProperties": False}},
            {"name": "Read", "description": "Reads a file.", "eager_input_streaming": True,
             "input_schema": {"type": "object", "properties": {"file_path": {"type": "string"}}}},
            {"type": "web_search_20250305", "name": "web_search", "max_uses": 8},
        ],
        "metadata": {"user_id": "{\"device_id\":\"0f3b\",\"session_id\":\"0198f0a5\"}"},
        "max_tokens": 32,
        "thinking": {"type": "adaptive"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "medium"},
        "stream": True,
    }


CLAUDE_CODE_TURNS = [
    {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "I list them.", "signature": "c2ln"},
        {"type": "text", "text": "I list the files."},
        {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": "README.md\nmain.c", "is_error": False,
         "cache_control": {"type": "ephemeral"}}]},
]
