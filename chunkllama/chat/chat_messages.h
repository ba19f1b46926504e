/*
 * Rewrites messages and tools for templates that cannot write all of them. What a template cannot write becomes text of the
 * messages, in the form that Hermes and Qwen models are trained on:
 *
 *   tools        in the system message, one JSON object a line between <tools> and </tools>
 *   calls        in the content of the assistant's message, <tool_call> {"name", "arguments"} </tool_call>
 *   results      in a message of the user, the next one if there is one, <tool_response> ... </tool_response>
 *   a system message, where the template has no such role, before the first message of the user
 *
 * A message with several calls, where the template refuses it, becomes one for each call, followed by its result. An
 * arrangement says where the messages of the system stand, and what else depends on the chat (chat_arrange.c).
 */
#ifndef CHUNKLLAMA_CHAT_CHAT_MESSAGES_H
#define CHUNKLLAMA_CHAT_CHAT_MESSAGES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* The abilities of a template (chat_probe.h). */
typedef struct cl_chat_abilities {
    bool system;         /* messages of the role system */
    bool developer;      /* messages of the role developer, which is system for other templates */
    bool strings;        /* content that is a string */
    bool parts;          /* content that is an array of parts */
    bool tools;          /* `tools`, in a chat of one of these kinds: */
    bool tools_alone;    /* without a system message */
    bool tools_system;   /* with a system message, which is written, too */
    bool tool_texts;     /* tools: each must have a description */
    bool tool_schemas;   /* tools: each must have parameters */
    bool calls;          /* tool_calls of messages, and messages of the role tool */
    bool argument_text;  /* calls: arguments must be JSON text, rather than an object */
    bool null_content;   /* calls: content may be null, rather than "" */
    bool short_ids;      /* calls: ids must have nine letters and digits (Mistral) */
    bool named_ids;      /* calls: ids are written in place of names, so they must be functions.NAME:NUMBER (Kimi) */
    bool single_calls;   /* calls: several in a message are refused (Llama 3.1), or some of them left out (gpt-oss) */
    bool calls_alone;    /* calls: text beside them makes the template refuse them or leave them out (DeepSeek R1) */
    bool thinking;       /* reads reasoning from `thinking` (gpt-oss) */
    bool thinking_alone; /* and refuses or leaves out content beside it in a message with calls */
} cl_chat_abilities;

/* Where the texts of the system stand: messages of the roles system and developer. */
typedef enum cl_chat_systems {
    CL_SYSTEMS_AS_THEY_ARE,
    CL_SYSTEMS_LATE_TO_USER, /* the first ones are one message; later ones are text of the user, at their places */
    CL_SYSTEMS_FIRST,        /* all are one message, the first */
    CL_SYSTEMS_ALL_TO_USER,  /* the first ones are text before the user's first message; later ones as in LATE_TO_USER */
    CL_SYSTEMS_FIRST_TO_USER /* all are text before the user's first message */
} cl_chat_systems;

/* How `tools` reach the template. */
typedef enum cl_chat_tools {
    CL_TOOLS_GIVEN,
    CL_TOOLS_BESIDE_SYSTEM, /* with an empty system message, if the chat has none */
    CL_TOOLS_DESCRIBED      /* in the system message */
} cl_chat_tools;

/* How calls reach a template that knows them. */
typedef enum cl_chat_calls {
    CL_CALLS_GIVEN,
    CL_CALLS_ODD_AS_OBJECT, /* arguments that are no JSON object, and so are given as text, become a member of one */
    CL_CALLS_DESCRIBED      /* calls and results are text, as for a template that knows none */
} cl_chat_calls;

/* How a chat is rewritten, beside what the template's abilities say. */
typedef struct cl_chat_arrangement {
    cl_chat_systems systems;
    cl_chat_calls calls;
    cl_chat_tools tools;
} cl_chat_arrangement;

/* Whether a message has a role, and whether it is one of the system: of the roles system and developer. */
bool cl_chat_is_role(const json_t *message, const char *role);
bool cl_chat_is_system(const json_t *message);

/* Whether content, a string or parts, has text. */
bool cl_chat_has_text(const json_t *content);

/*
 * The messages for a template of these abilities: a new reference, which shares values with `messages`. tools: NULL, or an
 * array that is described if the arrangement says so. *n_steps becomes the work that this takes, in steps of a template.
 * NULL: memory is lacking.
 */
json_t *cl_chat_rewrite(const cl_chat_abilities *can, const cl_chat_arrangement *arrangement, const json_t *messages,
                        const json_t *tools, int64_t *n_steps);

/*
 * The tools for a template of these abilities, a new reference: those that lack what each must have get an empty text, or the
 * schema of an object without properties. *n_steps grows as above. NULL: memory is lacking.
 */
json_t *cl_chat_complete_tools(const cl_chat_abilities *can, const json_t *tools, int64_t *n_steps);

#endif
