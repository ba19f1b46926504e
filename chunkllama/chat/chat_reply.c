/* Finds how the model of a chat writes its replies: by its template's text, or by a call that the template writes. */
#include "chat_internal.h"
#include "chunkllama/common/json_doc.h"

#define FUNCTION                                                                                                               \
    "{\"type\": \"function\", \"function\": {\"name\": \"" CL_REPLY_PROBE_NAME "\", \"description\": \"It.\", "                \
    "\"parameters\": {\"type\": \"object\", \"properties\": {\"" CL_REPLY_PROBE_KEY "\": {\"type\": \"string\", "              \
    "\"description\": \"It.\"}}}}}"
#define USER "{\"role\": \"user\", \"content\": \"It\"}"
#define CALL(arguments)                                                                                                        \
    "{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"id\": \"abcdef012\", \"type\": \"function\", "           \
    "\"function\": {\"name\": \"" CL_REPLY_PROBE_NAME "\", \"arguments\": " arguments "}}]}"
#define RESULT          "{\"role\": \"tool\", \"tool_call_id\": \"abcdef012\", \"content\": \"It\"}"
#define CHAT(arguments) "[[" USER ", " CALL(arguments) ", " RESULT "], [" FUNCTION "]]"

/* A chat with a call and a result, and its tool, as an array of both; NULL: memory is lacking. */
static json_t *made_up_chat(bool argument_text) {
    static const char with_object[] = CHAT("{\"" CL_REPLY_PROBE_KEY "\": \"" CL_REPLY_PROBE_VALUE "\"}");
    static const char with_text[] = CHAT("\"{\\\"" CL_REPLY_PROBE_KEY "\\\": \\\"" CL_REPLY_PROBE_VALUE "\\\"}\"");
    json_error_t wrong;
    bool no_memory;
    return argument_text ? cl_json_parse(with_text, sizeof with_text - 1, 0, &wrong, &no_memory)
                         : cl_json_parse(with_object, sizeof with_object - 1, 0, &wrong, &no_memory);
}

cl_status cl_chat_find_reply(cl_chat *chat, cl_error *error) {
    if (!cl_reply_format_find(cl_chat_text(chat, true), cl_chat_has_tools(chat), &chat->reply)) return CL_OK;
    json_t *made_up = made_up_chat(cl_chat_takes_argument_text(chat, true));
    if (!made_up) return cl_fail(error, CL_ERR_NOMEM, "no memory to try the chat template");
    cl_chat_input in;
    cl_chat_input_init(&in);
    in.messages = json_array_get(made_up, 0);
    in.tools = json_array_get(made_up, 1);
    cl_prompt text = {0};
    cl_error cause;
    const cl_status status = cl_chat_render(chat, &in, &text, &cause);
    if (status == CL_OK) cl_reply_format_probe((cl_str){text.text, text.size}, &chat->reply);
    cl_prompt_free(&text);
    json_decref(made_up);
    return status == CL_ERR_NOMEM ? cl_fail(error, CL_ERR_NOMEM, "no memory to try the chat template") : CL_OK;
}

const cl_reply_format *cl_chat_reply(const cl_chat *chat) { return &chat->reply; }
