/* `explain`: asks a server how much of a request's prompt is in its cache, and prints why not more. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/loadgen/endpoint.h"
#include "chunkllama/common/json_text.h"
#include "session.h"
#include "text_buffer.h"
#include "visible.h"

static const char PATH[] = "/cache/explain";

/* ---- The request ---- */

/* Read the request, and set its tenant and its API. *body is JSON text for the caller to free. */
static cl_status read_request(const cli_options *opt, char **body, cl_error *error) {
    const char *path = opt->n_args ? opt->args[0] : "-", *name = strcmp(path, "-") ? path : "standard input";
    cli_text t = {0};
    json_error_t problem;
    cl_status status = text_buffer_read(&t, path, error);
    json_t *request = status == CL_OK ? cl_json_load(t.data ? t.data : "", t.size, JSON_REJECT_DUPLICATES, &problem) : NULL;
    text_buffer_free(&t);
    if (status != CL_OK) return status;
    if (!json_is_object(request)) {
        json_decref(request);
        return cl_fail(error, CL_ERR_FORMAT, "%s is no request: %s", name,
                       request ? "it must be a JSON object with messages or a prompt" : problem.text);
    }
    if (opt->tenant) json_object_set_new(request, "tenant", json_string(opt->tenant));
    if (opt->path) json_object_set_new(request, "url", json_string(opt->path));
    *body = cl_json_dumps(request, JSON_COMPACT);
    json_decref(request);
    return *body ? CL_OK : cl_fail(error, CL_ERR_NOMEM, "no memory for the request");
}

static cl_status ask(const cli_options *opt, const char *body, json_t **answer, cl_error *error) {
    load_endpoint server;
    long http_status = 0;
    cl_status status = load_endpoint_open(&server, opt->url, opt->api_key, error);
    if (status == CL_OK) status = load_endpoint_post(&server, PATH, body, &http_status, answer, error);
    load_endpoint_close(&server);
    if (status != CL_OK || (http_status == 200 && json_is_object(*answer))) return status;
    const char *message = json_string_value(json_object_get(json_object_get(*answer, "error"), "message"));
    return cl_fail(error, CL_ERR_FORMAT, "%s%s answered HTTP %ld: %s%s", opt->url, PATH, http_status,
                   message ? message : "this is no chunkllama serve of this version",
                   http_status == 404 ? "; --url names the endpoint, without /v1" : "");
}

/* ---- The answer, for a person ---- */

static long long number(const json_t *object, const char *name) { return json_integer_value(json_object_get(object, name)); }

/* Print a text in quotes. What a terminal might obey is escaped. */
static void print_text(const json_t *text) {
    char *quoted = json_dumps(text, JSON_ENCODE_ANY);
    const char *shown = quoted ? quoted : "\"\"";
    visible_write(shown, strlen(shown), true, stdout);
    free(quoted);
}

static void print_side(const char *name, const json_t *side) {
    printf("  %s", name);
    if (!json_is_object(side)) {
        printf("nothing\n");
        return;
    }
    printf("token %lld ", number(side, "token"));
    print_text(json_object_get(side, "token_text"));
    printf(" of ");
    print_text(json_object_get(side, "text"));
    putchar('\n');
}

static void print_difference(const json_t *d) {
    if (!json_is_object(d)) return;
    printf("\nat position %lld, after ", number(d, "position"));
    print_text(json_object_get(d, "before"));
    printf(":\n");
    print_side("prompt  ", json_object_get(d, "prompt"));
    print_side("cache   ", json_object_get(d, "cache"));
}

static void print_seconds(const json_t *answer) {
    const json_t *saved = json_object_get(answer, "saved_seconds"), *missing = json_object_get(answer, "missing_seconds");
    if (!json_is_real(saved) || !json_is_real(missing)) return;
    printf("prefill         about %.2f s saved, %.2f s to do\n", json_real_value(saved), json_real_value(missing));
}

static void print_answer(const json_t *answer) {
    const char *message = json_string_value(json_object_get(answer, "message"));
    const json_t *other = json_object_get(answer, "other");
    const char *tenant = json_string_value(json_object_get(answer, "tenant"));
    printf("%s\n\n", message ? message : "");
    printf("tenant          %s\n", tenant ? tenant : "");
    printf("tokens          %lld\n", number(answer, "tokens"));
    printf("in the cache    %lld: %lld ready, %lld being computed, %lld on the way from the file\n", number(answer, "matched"),
           number(answer, "ready"), number(answer, "computing"), number(answer, "coming"));
    if (number(answer, "in_file") > 0) printf("in the file     %lld more\n", number(answer, "in_file"));
    if (json_is_object(other)) {
        const char *name = json_string_value(json_object_get(other, "tenant"));
        printf("others          %s has %lld, which are not shared\n", name ? name : "another tenant or cache_salt",
               number(other, "matched"));
    }
    const char *refusal = json_string_value(json_object_get(answer, "refusal"));
    if (refusal) printf("refused         %s\n", refusal);
    print_seconds(answer);
    print_difference(json_object_get(answer, "difference"));
}

int cmd_explain(const cli_options *opt) {
    cl_error error;
    char *body = NULL;
    json_t *answer = NULL;
    cl_status status = read_request(opt, &body, &error);
    if (status == CL_OK) status = ask(opt, body, &answer, &error);
    if (status == CL_OK && !opt->json) print_answer(answer);
    if (status == CL_OK && opt->json) {
        json_dumpf(answer, stdout, JSON_INDENT(2));
        putchar('\n');
    }
    json_decref(answer);
    free(body);
    return status == CL_OK ? 0 : session_fail(CMD_EXPLAIN, &error);
}
