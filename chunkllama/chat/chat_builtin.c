/*
 * The built-in templates: those that the models of each format were published with. They differ from them in three ways: they
 * say which message has a role that is unknown or out of turn; a system message is accepted where the published template has
 * none; and a token that the vocabulary lacks is left out.
 */
#include "chat_builtin.h"

#include <stddef.h>
#include <string.h>

/* Any order of these roles. */
#define CHECK_ROLES                                                                                                            \
    "{%- for m in messages -%}{%- if m.role not in ['system', 'user', 'assistant'] -%}"                                        \
    "{{ raise_exception('messages[' ~ loop.index0 ~ \"].role: '\" ~ m.role ~ \"' is not known; use system, user or "           \
    "assistant\") }}{%- endif -%}{%- endfor -%}"

/* At most one system message, first, and then user and assistant alternately. `turns` are all messages but the system's. */
#define CHECK_TURNS                                                                                                            \
    CHECK_ROLES                                                                                                                \
    "{%- set system = messages[0].content if messages[0].role == 'system' -%}"                                                 \
    "{%- set turns = messages[1:] if messages[0].role == 'system' else messages -%}"                                           \
    "{%- set before = messages | length - turns | length -%}"                                                                  \
    "{%- for m in turns -%}{%- set turn = ['user', 'assistant'][loop.index0 % 2] -%}{%- if m.role != turn -%}"                 \
    "{{ raise_exception('messages[' ~ (loop.index0 + before) ~ \"].role: '\" ~ m.role ~ \"' is out of turn, '\" ~ turn ~ "     \
    "\"' is next; in this chat format user and assistant alternate after at most one system message\") }}"                     \
    "{%- endif -%}{%- endfor -%}"                                                                                              \
    "{%- if add_generation_prompt and messages[-1].role != 'user' -%}"                                                         \
    "{{ raise_exception('messages[' ~ (messages | length - 1) ~ \"].role: in this chat format the last message is the "        \
    "user's\") }}{%- endif -%}"

static const cl_chat_builtin builtins[] = {
    {"chatml", CHECK_ROLES "{%- if messages[0].role != 'system' -%}{{ " CL_CHAT_BUILTIN_START " }}{%- endif -%}"
                           "{%- for m in messages -%}"
                           "{{ '<|im_start|>' ~ m.role ~ '\\n' ~ m.content ~ '<|im_end|>\\n' }}"
                           "{%- endfor -%}"
                           "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"},
    {"llama2", CHECK_TURNS "{%- for m in turns -%}"
                           "{%- if m.role == 'user' -%}"
                           "{%- set intro = '<<SYS>>\\n' ~ system ~ '\\n<</SYS>>\\n\\n' if loop.first and system else '' -%}"
                           "{{ bos_token ~ '[INST] ' ~ (intro ~ m.content).strip() ~ ' [/INST]' }}"
                           "{%- else -%}{{ ' ' ~ m.content.strip() ~ ' ' ~ eos_token }}{%- endif -%}"
                           "{%- endfor -%}"},
    {"llama3", CHECK_ROLES "{{ bos_token }}{%- for m in messages -%}"
                           "{{ '<|start_header_id|>' ~ m.role ~ '<|end_header_id|>\\n\\n' ~ m.content | trim ~ '<|eot_id|>' }}"
                           "{%- endfor -%}"
                           "{%- if add_generation_prompt -%}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}"
                           "{%- endif -%}"},
    {"zephyr",
     CHECK_ROLES "{%- for m in messages -%}{{ '<|' ~ m.role ~ '|>\\n' ~ m.content ~ eos_token ~ '\\n' }}{%- endfor -%}"
                 "{%- if add_generation_prompt -%}{{ '<|assistant|>\\n' }}{%- endif -%}"},
    {"mistral", CHECK_TURNS "{{ bos_token }}{%- for m in turns -%}"
                            "{%- if m.role == 'user' -%}"
                            "{{ '[INST] ' ~ (system ~ '\\n\\n' if loop.first and system else '') ~ m.content ~ ' [/INST]' }}"
                            "{%- else -%}{{ m.content ~ eos_token }}{%- endif -%}"
                            "{%- endfor -%}"},
    {"gemma", CHECK_TURNS "{{ bos_token }}{%- for m in turns -%}"
                          "{{ '<start_of_turn>' ~ ('user' if m.role == 'user' else 'model') ~ '\\n' }}"
                          "{{ (system ~ '\\n\\n' if loop.first and system else '') ~ m.content | trim ~ '<end_of_turn>\\n' }}"
                          "{%- endfor -%}"
                          "{%- if add_generation_prompt -%}{{ '<start_of_turn>model\\n' }}{%- endif -%}"},
};

const cl_chat_builtin *cl_chat_builtin_find(const char *name) {
    for (size_t i = 0; i < sizeof builtins / sizeof *builtins; i++)
        if (strcmp(name, builtins[i].name) == 0) return &builtins[i];
    return NULL;
}
