/* A line of a batch file: it is parsed, answered with events that do not depend on it, and printed. The record must be one line
 * of JSON. */
#include "fuzz.h"

#include <string.h>

#include "answer.h"
#include "serve/protocol/batch_line.h"
#include "tests/serve/protocol/fake.h"

static openai_context context;

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    context = (openai_context){.model = fake_model(), .model_name = "fake", .chat = fake_chat(), .n_ctx = 4096};
    openai_defaults_init(&context.defaults);
    return 0;
}

static void print(const batch_line *line) {
    char *text = NULL;
    size_t size = 0;
    bool is_error;
    FILE *out = open_memstream(&text, &size);
    FUZZ_CHECK(out && batch_line_print(line, out, &is_error), "not printed");
    fclose(out);
    FUZZ_CHECK(size > 0 && text[size - 1] == '\n' && memchr(text, '\n', size) == text + size - 1, "not one line");
    FUZZ_CHECK(is_error == (line->failed || line->result.failed), "error");
    check_json(text, size);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    batch_line line = {0};
    openai_tenants tenants = {0};
    const bool ok = batch_line_parse(&line, size % 2 + 1, (const char *)data, size, &context, &tenants);
    FUZZ_CHECK(ok == !line.failed && ok == line.has_result, "line");
    const bool large = ok && line.request.n_prompts * (size_t)line.request.params.n > 64;
    for (size_t i = 0; ok && !large && i < line.request.n_prompts; i++) send_events(&line.result, line.dialect, i);
    if (!large) print(&line);
    batch_line_free(&line);
    openai_tenants_free(&tenants);
    return 0;
}
