"""What Prometheus makes of what it is told."""

from prometheus_client.parser import text_string_to_metric_families


def samples_in(text):
    """Give all values by their names and labels."""
    return {
        (sample.name.removeprefix("sandbox_server_"), *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def labelled(samples, name):
    """Give the values of one metric by the values of its labels, in the order of their names."""
    return {
        tuple(value for _, value in labels): value
        for (found, *labels), value in samples.items()
        if found == name
    }


async def read_metrics(metrics_exporter):
    content, _ = await metrics_exporter.render("")
    return samples_in(content.decode())
