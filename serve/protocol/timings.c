/* Measures requests by their events, and writes llama-server's `timings`. */
#include "openai.h"

void openai_times_add(openai_times *times, double at) {
    times->last = at;
    if (times->first == 0) times->first = at;
}

/* n tokens and their time, under these names. */
static void write_part(openai_writer *w, const char *const names[4], int64_t n, double seconds) {
    const double ms = seconds > 0 ? 1e3 * seconds : 0; /* the clock may go back */
    writer_integer(w, names[0], n);
    writer_real(w, names[1], ms);
    writer_real(w, names[2], n > 0 ? ms / (double)n : 0);
    writer_real(w, names[3], ms > 0 ? 1e3 * (double)n / ms : 0);
}

/*
 * The prompt's time goes from the request's arrival to its first token, so it includes that of waiting. The completions' time
 * goes from there to the last token.
 */
void openai_write_timings(openai_writer *w, const openai_result *result) {
    static const char *const prompt[] = {"prompt_n", "prompt_ms", "prompt_per_token_ms", "prompt_per_second"};
    static const char *const predicted[] = {"predicted_n", "predicted_ms", "predicted_per_token_ms", "predicted_per_second"};
    const openai_usage usage = openai_result_usage(result);
    const openai_times *t = &result->times;
    const bool any = t->first > 0;
    writer_open(w, "timings", '{');
    writer_integer(w, "cache_n", usage.cached_tokens);
    write_part(w, prompt, usage.prompt_tokens - usage.cached_tokens, any ? t->first - t->begun : 0);
    write_part(w, predicted, usage.completion_tokens, any ? t->last - t->first : 0);
    writer_close(w);
}
