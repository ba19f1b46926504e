/* The subcommands of cattn-bench: each is one function in a file of its own. */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

/* argv[0] is the subcommand's name; the result is the exit status. */
int bench_fig3(int argc, char **argv);
int bench_fig4(int argc, char **argv);
int bench_kernel(int argc, char **argv);
int bench_machine(int argc, char **argv);
int bench_memory(int argc, char **argv);
int bench_never_worse(int argc, char **argv);
int bench_paper(int argc, char **argv);
int bench_prefill(int argc, char **argv);
int bench_render(int argc, char **argv);
int bench_retention(int argc, char **argv);
int bench_table1(int argc, char **argv);
int bench_table2(int argc, char **argv);
int bench_table3(int argc, char **argv);

#endif
