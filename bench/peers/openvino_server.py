#!/usr/bin/env python3
"""Serve OpenVINO GenAI with the endpoint that the load client needs: /v1/completions of token ids, streamed.

    build/peers-serve/bin/python bench/peers/openvino_server.py --port 8080 --model MODEL.gguf --threads 2

Its continuous batching with prefix caching does the work; one thread makes the steps, and one a request writes what they give.
Tokens are sent by number: detokenising them would only slow the peer down.
"""

import argparse
import http.server
import itertools
import json
import queue
import threading

import numpy as np
import openvino as ov
import openvino_genai as genai


class Engine:
    """Runs steps while there are requests; a request's queue gets its tokens, then None."""

    def __init__(self, args):
        scheduler = genai.SchedulerConfig()
        scheduler.enable_prefix_caching = True
        scheduler.dynamic_split_fuse = True
        scheduler.max_num_seqs = 32
        scheduler.max_num_batched_tokens = 512
        scheduler.cache_size = args.cache_gb
        self.pipeline = genai.ContinuousBatchingPipeline(args.model, scheduler, "CPU", {"INFERENCE_NUM_THREADS": args.threads})
        self.changed = threading.Condition()
        self.arrived, self.running, self.ids = [], {}, itertools.count()
        threading.Thread(target=self.work, daemon=True).start()

    def submit(self, tokens, max_tokens):
        config = genai.GenerationConfig()
        config.max_new_tokens = max_tokens
        config.ignore_eos = True
        config.do_sample = False
        out = queue.SimpleQueue()
        with self.changed:
            self.arrived.append((tokens, config, out))
            self.changed.notify()
        return out

    def work(self):
        while True:
            with self.changed:
                while not self.arrived and not self.running:
                    self.changed.wait()
                arrived, self.arrived = self.arrived, []
            for tokens, config, out in arrived:
                i = next(self.ids)
                prompt = ov.Tensor(np.array([tokens], dtype=np.int64))
                self.running[i] = (self.pipeline.add_request(i, prompt, config), out)
            self.pipeline.step()
            for i, (handle, out) in list(self.running.items()):
                while handle.can_read():
                    out.put(sum(len(o.generated_ids) for o in handle.read().values()))
                if handle.get_status() != genai.GenerationStatus.RUNNING:
                    out.put(None)
                    del self.running[i]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        body = json.dumps({"data": [{"id": "openvino"}]}).encode()
        self.send_response(200 if self.path == "/v1/models" else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def event(self, text):
        data = f"data: {text}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        out = self.server.engine.submit(body["prompt"], body["max_tokens"])
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        n_tokens = 0
        while (n := out.get()) is not None:
            n_tokens += n
            self.event('{"choices": [{"text": "x", "finish_reason": null}]}')
        usage = {"prompt_tokens": len(body["prompt"]), "completion_tokens": n_tokens}
        self.event(json.dumps({"choices": [], "usage": usage}))
        self.event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", required=True, help="GGUF file or a folder of OpenVINO's form")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cache-gb", type=int, default=2, help="for K/V (default 2)")
    args = parser.parse_args()
    server = Server(("127.0.0.1", args.port), Handler)
    server.engine = Engine(args)
    server.serve_forever()


main()
