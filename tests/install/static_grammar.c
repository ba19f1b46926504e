/* A static program that names a grammar library, which dlopen could not load into it: CL_ERR_UNSUPPORTED, not a crash. */
#include <chunkllama.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    cl_model *model;
    cl_engine *engine;
    cl_engine_config config;
    cl_error error = {.message = ""};
    if (argc != 3 || cl_model_load(argv[1], NULL, &model, &error) != CL_OK) return printf("%s\n", error.message), 1;
    cl_engine_config_init(&config);
    config.grammar_library = argv[2];
    const cl_status status = cl_engine_create(model, &config, &engine, &error);
    printf("%s: %s\n", cl_status_name(status), error.message);
    cl_model_free(&model);
    return status == CL_ERR_UNSUPPORTED && strcmp(error.field, "grammar_library") == 0 ? 0 : 1;
}
