"""Load on a server over HTTP, and what of it may be said; standard library and kassay.stats only, no model.

    arrivals   when requests are to be sent, and how well that was kept
    stream     one HTTP request whose answer comes as server-sent events
    client     the two loops: closed at a concurrency, open at an offered rate
    prompts    different texts for every request, the same for every arm
    metrics    what a load's requests say: times of the successful ones, failures beside them
    process    the server's process: free port, start, health, stop
    tools      the same load by aiperf or `vllm bench serve`, judged by their JSON
    vllm_*     `vllm serve` behind a cell: its command, what its engine attests around the loads, what it counted
    verdicts   gates and comparisons of arms

Requests in flight are a concurrency; how many of them a server decodes together is its own affair, no batch of ours.
"""
