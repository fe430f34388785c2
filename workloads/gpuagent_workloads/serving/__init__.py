"""A small server of the Llama model, with the API of OpenAI: `python -m gpuagent_workloads serve`."""
